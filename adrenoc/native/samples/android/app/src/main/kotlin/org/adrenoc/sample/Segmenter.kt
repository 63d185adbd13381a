package org.adrenoc.sample

import java.nio.ByteBuffer
import java.nio.FloatBuffer
import org.adrenoc.ImageInput
import org.adrenoc.Model
import org.adrenoc.Tensor

/**
 * Says what each part of a picture is: a map of float scores, a layer for each kind of thing, the
 * largest wins; of one layer alone what is above the half is there.
 */
class Segmenter(private val model: Model) : AutoCloseable {
    /** Of each pixel a colour with its alpha in the highest byte, row by row; 0 for the first kind. */
    class Overlay(val colours: IntArray, val width: Int, val height: Int, val runMs: Double)

    private val pixels: ByteBuffer
    private val scores: ByteBuffer
    private val image: ImageInput
    private val map = Map.of(model.outputs()[0])

    init {
        val input = model.inputs()[0]
        // Most are trained on pixels from 0 to 1 (MediaPipe's) or on ImageNet's means: see yours.
        image = ImageInput(input)
        pixels = input.allocate()
        scores = model.outputs()[0].allocate()
        model.bindInput(0, pixels)
        model.bindOutput(0, scores)
    }

    /** Of a picture of RGBA, which is turned by so many degrees to stand upright. */
    fun segment(picture: ByteBuffer, width: Int, height: Int, rowBytes: Int, degrees: Int): Overlay {
        image.write(picture, width, height, rowBytes, degrees, pixels)
        model.run()
        val floats = scores.asFloatBuffer()
        val colours = IntArray(map.width * map.height) { COLOURS[map.kind(floats, it) % COLOURS.size] }
        return Overlay(colours, map.width, map.height, model.times().computeMs)
    }

    override fun close() = model.close()

    /** How scores lie: `step` numbers from a pixel to the next, `layer` from a kind to the next. */
    private class Map(
        val width: Int,
        val height: Int,
        val kinds: Int,
        val step: Int,
        val layer: Int,
    ) {
        fun kind(scores: FloatBuffer, pixel: Int): Int {
            val at = pixel * step
            if (kinds == 1) return if (scores.get(at) > HALF) 1 else 0
            return (0 until kinds).maxBy { scores.get(at + it * layer) }
        }

        companion object {
            fun of(tensor: Tensor): Map {
                val (_, first, second, last) = tensor.shape().map { it.toInt() }
                // As TFLite has it the kinds are last, as ONNX has it first: there are fewer of them
                // than rows.
                return if (last < first) Map(second, first, last, last, 1)
                else Map(last, second, first, 1, second * last)
            }
        }
    }

    companion object {
        private const val HALF = 0.5f

        // The first kind is what is left: nothing is drawn over it.
        private val COLOURS = intArrayOf(
            0, 0x80E6194B.toInt(), 0x803CB44B.toInt(), 0x80FFE119.toInt(), 0x804363D8.toInt(),
            0x80F58231.toInt(), 0x80911EB4.toInt(), 0x8042D4F4.toInt(),
        )

        /** Whether a model is one: a picture in, a map of float scores out. */
        fun takes(model: Model): Boolean =
            model.inputs().size == 1 && isPicture(model.inputs()[0]) && isMap(model.outputs()[0])

        private fun isMap(tensor: Tensor): Boolean {
            val shape = tensor.shape()
            return tensor.type() == "float32" && shape.size == 4 && shape[0] == 1L &&
                shape.count { it > 1 } >= 2
        }
    }
}
