package org.adrenoc.sample

import android.content.res.AssetManager
import java.nio.ByteBuffer
import java.nio.ByteOrder

/**
 * A bundle from the app's assets.
 *
 *     val model = Adrenoc(assets, "mobilenet_v2.adrenoc.tar", cacheDir.path)
 *     val pixels = Adrenoc.buffer(model.inputs[0].bytes)
 *     val scores = Adrenoc.buffer(model.outputs[0].bytes)
 *     model.bindInput(0, pixels)
 *     model.bindOutput(0, scores)
 *     model.run()
 *
 * The buffers are read and written in place, and kept as long as the model.  One thread at a time
 * may use a model.  What fails throws IllegalStateException with the runtime's words.
 */
class Adrenoc(assets: AssetManager, name: String, cacheFolder: String) : AutoCloseable {
    /** An input or output; the extents of `shape` are written as `1x3x224x224`. */
    data class Tensor(val name: String, val dtype: String, val shape: String, val bytes: Int)

    private var handle = load(assets, name, cacheFolder)
    private val buffers = mutableMapOf<Pair<Boolean, Int>, ByteBuffer>()

    val name: String = describe(handle, NAME, 0)
    val device: String = describe(handle, DEVICE, 0)
    val inputs: List<Tensor> = List(count(handle, true)) { tensor(describe(handle, INPUT, it)) }
    val outputs: List<Tensor> = List(count(handle, false)) { tensor(describe(handle, OUTPUT, it)) }

    /** Whether it makes tokens. */
    val isDecoder: Boolean = inputs.any { it.name == "past_length" }

    fun bindInput(index: Int, buffer: ByteBuffer) {
        bind(handle, true, index, buffer)
        buffers[true to index] = buffer
    }

    fun bindOutput(index: Int, buffer: ByteBuffer) {
        bind(handle, false, index, buffer)
        buffers[false to index] = buffer
    }

    /**
     * What the phone's driver computes wrongly, in a sentence; null where all is right.  Needs a bundle
     * that `adrenoc prove` put a proof into.  Takes some runs, and nothing once a driver is known.
     */
    fun verify(): String? = verify(handle)

    fun run() = run(handle)

    /** Runs so often without waiting in between; the milliseconds of one run. */
    fun runRepeatedly(runs: Int): Double = runRepeatedly(handle, runs)

    /** How a decoder picks tokens: a temperature of 0 takes the likeliest. */
    data class Sampling(
        val temperature: Float = 0f,
        val topK: Int = 0,
        val topP: Float = 1f,
        val seed: Long = 0,
    )

    /** Is told each token as it comes, and says whether to go on. */
    fun interface OnToken {
        fun onToken(token: Long): Boolean
    }

    /** Takes in a prompt and makes up to `most` tokens, 0 for as many as the context has room for. */
    fun generate(
        prompt: LongArray,
        most: Int = 0,
        sampling: Sampling = Sampling(),
        onToken: OnToken,
    ) = sampling.run { generate(handle, prompt, most, temperature, topK, topP, seed, onToken) }

    /** Ends a `generate` that goes on in another thread. */
    fun stop() = stop(handle)

    /** Tokens that the context holds, and how many it has room for. */
    val tokens: Long get() = context(handle, false)
    val rows: Long get() = context(handle, true)

    /** Forgets all but the first tokens. */
    fun rewind(tokens: Long) = rewind(handle, tokens)

    /** The context, for `restoreContext` of the same model. */
    fun saveContext(): ByteArray = save(handle)

    fun restoreContext(saved: ByteArray) = restore(handle, saved)

    /** Gives GPU memory back, as when the system asks apps to trim theirs; the next run takes longer. */
    fun trim() = trim(handle)

    override fun close() {
        free(handle)
        handle = 0
    }

    companion object {
        private const val NAME = 0
        private const val DEVICE = 1
        private const val INPUT = 2
        private const val OUTPUT = 3

        init {
            System.loadLibrary("adrenoc_jni")
        }

        fun buffer(bytes: Int): ByteBuffer =
            ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder())

        /** A tensor of a line of the native half: dtype, shape, bytes and name, tabs between. */
        private fun tensor(line: String): Tensor {
            val (dtype, shape, bytes, name) = line.split("\t", limit = 4)
            return Tensor(name, dtype, shape, bytes.toInt())
        }

        @JvmStatic private external fun load(assets: AssetManager, name: String, cache: String): Long
        @JvmStatic private external fun describe(handle: Long, what: Int, index: Int): String
        @JvmStatic private external fun count(handle: Long, ofInputs: Boolean): Int
        @JvmStatic
        private external fun bind(handle: Long, isInput: Boolean, index: Int, buffer: ByteBuffer)
        @JvmStatic private external fun verify(handle: Long): String?
        @JvmStatic private external fun run(handle: Long)
        @JvmStatic private external fun runRepeatedly(handle: Long, runs: Int): Double
        @JvmStatic
        private external fun generate(
            handle: Long,
            prompt: LongArray,
            most: Int,
            temperature: Float,
            topK: Int,
            topP: Float,
            seed: Long,
            listener: OnToken,
        )
        @JvmStatic private external fun stop(handle: Long)
        @JvmStatic private external fun rewind(handle: Long, tokens: Long)
        @JvmStatic private external fun context(handle: Long, ofRows: Boolean): Long
        @JvmStatic private external fun save(handle: Long): ByteArray
        @JvmStatic private external fun restore(handle: Long, saved: ByteArray)
        @JvmStatic private external fun trim(handle: Long)
        @JvmStatic private external fun free(handle: Long)
    }
}
