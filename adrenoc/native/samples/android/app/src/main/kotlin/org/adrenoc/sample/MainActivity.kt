package org.adrenoc.sample

import android.app.Activity
import android.os.Bundle
import android.util.Log
import android.widget.ScrollView
import android.widget.TextView
import java.nio.ByteBuffer
import java.util.Random
import kotlin.concurrent.thread

/** Runs each bundle among the app's assets on seeded random numbers, and shows what comes out. */
class MainActivity : Activity() {
    private lateinit var text: TextView

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        text = TextView(this).apply { setPadding(32, 96, 32, 32) }
        setContentView(ScrollView(this).apply { addView(text) })
        // Loading builds kernels: a second or more the first time.  Never on the main thread.
        thread { runAll() }
    }

    private fun runAll() {
        val bundles = assets.list("").orEmpty().filter { it.endsWith(".adrenoc.tar") }
        if (bundles.isEmpty()) show("There is no bundle (*.adrenoc.tar) among the assets.")
        for (name in bundles) {
            try {
                Adrenoc(assets, name, cacheDir.path).use {
                    show(if (it.isDecoder) makeTokens(it) else runOnce(it))
                }
            } catch (error: IllegalStateException) {
                show("$name: ${error.message}")
            }
        }
    }

    private fun makeTokens(model: Adrenoc): String {
        val made = StringBuilder()
        model.generate(longArrayOf(1), most = TOKENS, sampling = Adrenoc.Sampling(0.8f, topK = 40)) {
            made.append("$it ")
            true
        }
        return "${model.name} on ${model.device}\n  $made\n  ${model.tokens} of ${model.rows} rows"
    }

    private fun runOnce(model: Adrenoc): String {
        val inputs = model.inputs.mapIndexed { index, tensor ->
            random(tensor).also { model.bindInput(index, it) }
        }
        val outputs = model.outputs.mapIndexed { index, tensor ->
            Adrenoc.buffer(tensor.bytes).also { model.bindOutput(index, it) }
        }
        model.run()
        val runMs = model.runRepeatedly(RUNS)
        val lines = model.outputs.zip(outputs) { tensor, buffer ->
            "  ${tensor.name} ${tensor.shape} ${tensor.dtype}: ${first(tensor, buffer)}"
        }
        return "${model.name} on ${model.device}\n" +
            "  %.2f ms a run, mean of %d, %d inputs\n".format(runMs, RUNS, inputs.size) +
            lines.joinToString("\n")
    }

    private fun random(tensor: Adrenoc.Tensor): ByteBuffer {
        val buffer = Adrenoc.buffer(tensor.bytes)
        val numbers = Random(SEED)
        // Whole numbers stay zero: as indices, others might lead outside of a table.
        if (tensor.dtype == "float32") {
            val floats = buffer.asFloatBuffer()
            while (floats.hasRemaining()) floats.put(numbers.nextFloat())
        }
        return buffer
    }

    private fun first(tensor: Adrenoc.Tensor, buffer: ByteBuffer): String {
        if (tensor.dtype != "float32") return "${buffer.capacity()} bytes"
        val floats = buffer.asFloatBuffer()
        val shown = (0 until minOf(SHOWN, floats.remaining())).map { "%.4g".format(floats.get(it)) }
        return shown.joinToString(" ") + if (floats.remaining() > SHOWN) " ..." else ""
    }

    private fun show(said: String) {
        Log.i(TAG, said)
        runOnUiThread { text.append("$said\n\n") }
    }

    private companion object {
        const val RUNS = 20
        const val SEED = 7L
        const val SHOWN = 5
        const val TOKENS = 32
        const val TAG = "adrenoc"
    }
}
