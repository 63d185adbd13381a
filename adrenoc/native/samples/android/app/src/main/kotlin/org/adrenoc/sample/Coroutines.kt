package org.adrenoc.sample

import java.nio.ByteBuffer
import kotlin.coroutines.CoroutineContext
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.channels.trySendBlocking
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.buffer
import kotlinx.coroutines.flow.channelFlow
import kotlinx.coroutines.flow.flowOn
import kotlinx.coroutines.withContext
import org.adrenoc.Generation
import org.adrenoc.Model

/** The outputs of these inputs, by name; computed off the calling thread. */
suspend fun Model.compute(
    inputs: Map<String, ByteBuffer>,
    context: CoroutineContext = Dispatchers.Default,
): Map<String, ByteBuffer> = withContext(context) { this@compute.run(inputs) }

/** Tokens after this prompt, made as they are collected; who stops collecting ends them. */
fun Generation.stream(prompt: LongArray): Flow<Long> =
    channelFlow {
        generate(prompt) { token -> trySendBlocking(token).isSuccess }
        Unit
    }
        .buffer(Channel.RENDEZVOUS)
        .flowOn(Dispatchers.IO)
