package org.adrenoc.sample

import android.Manifest
import android.os.Bundle
import android.widget.LinearLayout
import android.widget.TextView
import androidx.activity.ComponentActivity
import androidx.activity.result.contract.ActivityResultContracts
import androidx.camera.core.CameraSelector
import androidx.camera.core.ImageAnalysis
import androidx.camera.core.ImageProxy
import androidx.camera.core.Preview
import androidx.camera.lifecycle.ProcessCameraProvider
import androidx.camera.view.PreviewView
import androidx.core.content.ContextCompat
import java.util.concurrent.Executors
import org.adrenoc.AdrenocException
import org.adrenoc.Model
import org.adrenoc.Options

/** Shows what the camera sees, and which class the first classifier of the assets gives to it. */
class CameraActivity : ComponentActivity() {
    private lateinit var preview: PreviewView
    private lateinit var text: TextView

    // All that touches the model runs here, one after the other; closing it, too.
    private val worker = Executors.newSingleThreadExecutor()
    private var classifier: Classifier? = null

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        preview = PreviewView(this)
        text = TextView(this).apply { setPadding(32, 96, 32, 32) }
        val column = LinearLayout(this).apply { orientation = LinearLayout.VERTICAL }
        column.addView(text)
        column.addView(preview)
        setContentView(column)
        val asked = registerForActivityResult(ActivityResultContracts.RequestPermission()) { granted ->
            if (granted) worker.execute { load() } else show("The camera was not allowed.")
        }
        asked.launch(Manifest.permission.CAMERA)
    }

    override fun onDestroy() {
        super.onDestroy()
        worker.execute { classifier?.close() }
        worker.shutdown()
    }

    private fun load() {
        try {
            classifier = find()
        } catch (error: AdrenocException) {
            show("${error.message}")
            return
        }
        if (classifier == null) show("No bundle among the assets takes a picture.")
        else runOnUiThread { startCamera() }
    }

    private fun find(): Classifier? {
        val names = assets.list("").orEmpty().filter { it.endsWith(".adrenoc.tar") }
        for (name in names) {
            val model = Model.fromAsset(assets, name, Options().cacheFolder(cacheDir))
            if (Classifier.takes(model)) return Classifier(model)
            model.close()
        }
        return null
    }

    private fun startCamera() {
        val provided = ProcessCameraProvider.getInstance(this)
        val analysis = ImageAnalysis.Builder()
            .setOutputImageFormat(ImageAnalysis.OUTPUT_IMAGE_FORMAT_RGBA_8888)
            .setBackpressureStrategy(ImageAnalysis.STRATEGY_KEEP_ONLY_LATEST)
            .build()
        analysis.setAnalyzer(worker) { proxy -> proxy.use { classify(it) } }
        val shown = Preview.Builder().build()
        shown.setSurfaceProvider(preview.surfaceProvider)
        provided.addListener(
            {
                provided.get().unbindAll()
                val camera = CameraSelector.DEFAULT_BACK_CAMERA
                provided.get().bindToLifecycle(this, camera, shown, analysis)
            },
            ContextCompat.getMainExecutor(this),
        )
    }

    private fun classify(proxy: ImageProxy) {
        val answer = classifier?.classify(proxy) ?: return
        show("class %d, score %.3f, %.1f ms".format(answer.number, answer.score, answer.runMs))
    }

    private fun show(said: String) = runOnUiThread { text.text = said }
}
