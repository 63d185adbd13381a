package org.adrenoc.sample

import java.nio.ByteBuffer
import org.adrenoc.ImageInput
import org.adrenoc.Model
import org.adrenoc.Tensor

/** Says which class a model gives to a picture: float scores of one picture, the largest wins. */
class Classifier(private val model: Model) : AutoCloseable {
    /** A class by its number, its score, and how long the model took. */
    data class Answer(val number: Int, val score: Float, val runMs: Double)

    private val pixels: ByteBuffer
    private val scores: ByteBuffer
    private val image: ImageInput

    init {
        val input = model.inputs()[0]
        // Means and deviations of ImageNet, which most classifiers were trained with.
        image = ImageInput(input).mean(.485f, .456f, .406f).deviation(.229f, .224f, .225f)
        pixels = input.allocate()
        scores = model.outputs()[0].allocate()
        model.bindInput(0, pixels)
        model.bindOutput(0, scores)
    }

    /** Of a picture of RGBA, which is turned by so many degrees to stand upright. */
    fun classify(picture: ByteBuffer, width: Int, height: Int, rowBytes: Int, degrees: Int): Answer {
        image.write(picture, width, height, rowBytes, degrees, pixels)
        model.run()
        val floats = scores.asFloatBuffer()
        val best = (0 until floats.limit()).maxBy { floats.get(it) }
        return Answer(best, floats.get(best), model.times().computeMs)
    }

    override fun close() = model.close()

    companion object {
        /** Whether a model is one: a picture in, a row of float scores out. */
        fun takes(model: Model): Boolean =
            model.inputs().size == 1 && isPicture(model.inputs()[0]) && isRow(model.outputs()[0])

        private fun isRow(tensor: Tensor): Boolean =
            tensor.type() == "float32" && tensor.elements() == tensor.shape().max()
    }
}

/** Whether a tensor is one picture of three channels, which come first or last. */
internal fun isPicture(tensor: Tensor): Boolean {
    val shape = tensor.shape()
    return shape.size == 4 && shape[0] == 1L && (shape[1] == 3L || shape[3] == 3L)
}
