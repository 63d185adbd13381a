package org.adrenoc.sample

import android.Manifest
import android.graphics.Bitmap
import android.os.Bundle
import android.widget.FrameLayout
import android.widget.ImageView
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

/**
 * Shows what the camera sees, and what the first model of the assets that takes a picture says of it:
 * a classifier its class, and a model that segments colours over the picture.
 */
class CameraActivity : ComponentActivity() {
    private lateinit var preview: PreviewView
    private lateinit var text: TextView
    private lateinit var overlay: ImageView

    // All that touches the model runs here, one after the other; closing it, too.
    private val worker = Executors.newSingleThreadExecutor()
    private var classifier: Classifier? = null
    private var segmenter: Segmenter? = null

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        preview = PreviewView(this)
        text = TextView(this).apply { setPadding(32, 96, 32, 32) }
        val column = LinearLayout(this).apply { orientation = LinearLayout.VERTICAL }
        // The model sees the middle of the picture; upright both fill the width of the screen.
        preview.scaleType = PreviewView.ScaleType.FIT_CENTER
        overlay = ImageView(this).apply { scaleType = ImageView.ScaleType.FIT_CENTER }
        val shown = FrameLayout(this)
        shown.addView(preview)
        shown.addView(overlay)
        column.addView(text)
        column.addView(shown)
        setContentView(column)
        val asked = registerForActivityResult(ActivityResultContracts.RequestPermission()) { granted ->
            if (granted) worker.execute { load() } else show("The camera was not allowed.")
        }
        asked.launch(Manifest.permission.CAMERA)
    }

    override fun onDestroy() {
        super.onDestroy()
        worker.execute {
            classifier?.close()
            segmenter?.close()
        }
        worker.shutdown()
    }

    private fun load() {
        try {
            val model = findBundle(this) { Segmenter.takes(it) || Classifier.takes(it) }
            if (model != null && Segmenter.takes(model)) segmenter = Segmenter(model)
            else classifier = model?.let { Classifier(it) }
        } catch (error: AdrenocException) {
            show("${error.message}")
            return
        }
        if (classifier == null && segmenter == null) show("No bundle among the assets takes a picture.")
        else runOnUiThread { startCamera() }
    }

    private fun startCamera() {
        val provided = ProcessCameraProvider.getInstance(this)
        val analysis = ImageAnalysis.Builder()
            .setOutputImageFormat(ImageAnalysis.OUTPUT_IMAGE_FORMAT_RGBA_8888)
            .setBackpressureStrategy(ImageAnalysis.STRATEGY_KEEP_ONLY_LATEST)
            .build()
        analysis.setAnalyzer(worker) { proxy -> proxy.use { see(it) } }
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

    private fun see(proxy: ImageProxy) {
        val (width, height) = proxy.width to proxy.height
        val picture = proxy.planes[0]
        val (row, degrees) = picture.rowStride to proxy.imageInfo.rotationDegrees
        classifier?.classify(picture.buffer, width, height, row, degrees)?.let {
            show("class %d, score %.3f, %.1f ms".format(it.number, it.score, it.runMs))
        }
        segmenter?.segment(picture.buffer, width, height, row, degrees)?.let {
            val colours = Bitmap.createBitmap(it.colours, it.width, it.height, Bitmap.Config.ARGB_8888)
            runOnUiThread { overlay.setImageBitmap(colours) }
            show("%.1f ms".format(it.runMs))
        }
    }

    private fun show(said: String) = runOnUiThread { text.text = said }
}
