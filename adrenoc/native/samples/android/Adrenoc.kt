package org.adrenoc.sample

import android.content.res.AssetManager
import java.nio.ByteBuffer
import java.nio.ByteOrder

/**
 * A bundle from the app's assets.
 *
 *     val model = Adrenoc(assets, "mobilenet_v2.adrenoc.tar", cacheDir.path)
 *     val pixels = Adrenoc.buffer(1 * 3 * 224 * 224 * 4)
 *     val scores = Adrenoc.buffer(1000 * 4)
 *     model.bindInput(0, pixels)
 *     model.bindOutput(0, scores)
 *     model.run()
 *
 * The buffers are read and written in place: keep them as long as the model.
 */
class Adrenoc(assets: AssetManager, name: String, cacheFolder: String) : AutoCloseable {
    private var handle = load(assets, name, cacheFolder)
    private val buffers = mutableListOf<ByteBuffer>()

    fun bindInput(index: Int, buffer: ByteBuffer) {
        buffers += buffer
        bindInput(handle, index, buffer)
    }

    fun bindOutput(index: Int, buffer: ByteBuffer) {
        buffers += buffer
        bindOutput(handle, index, buffer)
    }

    fun run() = run(handle)

    override fun close() {
        free(handle)
        handle = 0
    }

    companion object {
        init {
            System.loadLibrary("adrenoc_jni")
        }

        fun buffer(bytes: Int): ByteBuffer =
            ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder())

        @JvmStatic private external fun load(assets: AssetManager, name: String, cache: String): Long
        @JvmStatic private external fun bindInput(handle: Long, index: Int, buffer: ByteBuffer)
        @JvmStatic private external fun bindOutput(handle: Long, index: Int, buffer: ByteBuffer)
        @JvmStatic private external fun run(handle: Long)
        @JvmStatic private external fun free(handle: Long)
    }
}
