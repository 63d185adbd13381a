package org.adrenoc.sample

import android.app.Activity
import android.content.Intent
import android.os.Bundle
import android.util.Log
import android.widget.Button
import android.widget.LinearLayout
import android.widget.ScrollView
import android.widget.TextView
import java.nio.ByteBuffer
import java.util.Random
import kotlin.concurrent.thread
import org.adrenoc.AdrenocException
import org.adrenoc.Model
import org.adrenoc.Options
import org.adrenoc.Tensor

/** Runs each bundle among the app's assets on seeded random numbers, and shows what comes out. */
class MainActivity : Activity() {
    private lateinit var text: TextView

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        text = TextView(this).apply { setPadding(32, 96, 32, 32) }
        val column = LinearLayout(this).apply { orientation = LinearLayout.VERTICAL }
        for ((name, kind) in SCREENS) {
            val button = Button(this).apply { this.text = name }
            button.setOnClickListener { startActivity(Intent(this, kind)) }
            column.addView(button)
        }
        column.addView(text)
        setContentView(ScrollView(this).apply { addView(column) })
        // Loading builds kernels: a second or more the first time.  Never on the main thread.
        thread { runAll() }
    }

    private fun runAll() {
        val bundles = bundleNames(this)
        if (bundles.isEmpty()) show("There is no bundle (*.adrenoc.tar) among the assets.")
        val options = Options().cacheFolder(cacheDir)
        for (name in bundles) {
            try {
                Model.fromAsset(assets, name, options).use {
                    show(if (Conversation.takes(it)) makeTokens(it) else runOnce(it))
                }
            } catch (error: AdrenocException) {
                show("$name: ${error.message}")
            }
        }
    }

    private fun makeTokens(model: Model): String {
        val made = StringBuilder()
        val generation = model.generation().maxTokens(TOKENS).temperature(0.8f).topK(40)
        generation.generate(longArrayOf(1)) { token ->
            made.append("$token ")
            true
        }
        return "${model.name()} on ${model.device()}\n  $made\n" +
            "  ${generation.tokens()} of ${generation.capacity()} rows"
    }

    private fun runOnce(model: Model): String {
        val inputs = model.inputs().map { random(it) }
        val outputs = model.outputs().map { it.allocate() }
        model.run(inputs.toTypedArray(), outputs.toTypedArray())
        val runMs = model.runRepeatedly(RUNS)
        val lines = model.outputs().zip(outputs) { tensor, buffer -> "  $tensor: ${first(tensor, buffer)}" }
        return "${model.name()} on ${model.device()}\n" +
            "  %.2f ms a run, mean of %d, %d inputs\n".format(runMs, RUNS, inputs.size) +
            lines.joinToString("\n")
    }

    private fun random(tensor: Tensor): ByteBuffer {
        val buffer = tensor.allocate()
        val numbers = Random(SEED)
        // Whole numbers stay zero: as indices, others might lead outside of a table.
        if (tensor.type() == "float32") {
            val floats = buffer.asFloatBuffer()
            while (floats.hasRemaining()) floats.put(numbers.nextFloat())
        }
        return buffer
    }

    private fun first(tensor: Tensor, buffer: ByteBuffer): String {
        if (tensor.type() != "float32") return "${buffer.capacity()} bytes"
        val floats = buffer.asFloatBuffer()
        val shown = (0 until minOf(SHOWN, floats.remaining())).map { "%.4g".format(floats.get(it)) }
        return shown.joinToString(" ") + if (floats.remaining() > SHOWN) " ..." else ""
    }

    private fun show(said: String) {
        Log.i(TAG, said)
        runOnUiThread { text.append("$said\n\n") }
    }

    private companion object {
        val SCREENS = mapOf("Camera" to CameraActivity::class.java, "Chat" to ChatActivity::class.java)
        const val RUNS = 20
        const val SEED = 7L
        const val SHOWN = 5
        const val TOKENS = 32
        const val TAG = "adrenoc"
    }
}
