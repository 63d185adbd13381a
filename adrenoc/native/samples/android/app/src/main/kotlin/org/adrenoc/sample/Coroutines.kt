package org.adrenoc.sample

import android.os.CancellationSignal
import android.os.OperationCanceledException
import java.nio.ByteBuffer
import kotlin.coroutines.CoroutineContext
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.channels.SendChannel
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.buffer
import kotlinx.coroutines.flow.channelFlow
import kotlinx.coroutines.flow.flowOn
import kotlinx.coroutines.job
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withContext
import org.adrenoc.Generation
import org.adrenoc.Message
import org.adrenoc.Model

/**
 * The outputs of these inputs, by name; computed off the calling thread. Who is cancelled ends the
 * run, and has it ended when this returns: the inputs are the caller's again.
 */
suspend fun Model.compute(
    inputs: Map<String, ByteBuffer>,
    context: CoroutineContext = Dispatchers.Default,
): Map<String, ByteBuffer> = withContext(context) {
    val signal = CancellationSignal()
    // In the thread of whoever cancels: the context's own may all be computing.
    val watch = launch(Dispatchers.Unconfined) {
        try {
            awaitCancellation()
        } finally {
            signal.cancel()
        }
    }
    try {
        this@compute.run(inputs, signal)
    } catch (error: OperationCanceledException) {
        throw CancellationException("the run was cancelled", error)
    } finally {
        watch.cancel()
    }
}

/** Tokens after this prompt, made as they are collected; who stops collecting ends them. */
fun Generation.stream(prompt: LongArray): Flow<Long> = told { tell -> generate(prompt) { tell(it) } }

/** The answer to a conversation in pieces that are whole letters, in the same way. */
fun Generation.streamAnswer(messages: List<Message>): Flow<String> =
    told { tell -> answer(messages) { tell(it) } }

/** What `ask` is told, one by one. */
private fun <T> told(ask: (tell: (T) -> Boolean) -> Unit): Flow<T> =
    channelFlow {
        val job = coroutineContext.job
        try {
            ask { one -> hand(one, channel, job) }
        } catch (error: RuntimeException) {
            // Thrown from here it would cancel who collects, and what is on its way would be lost.
            close(error)
        }
    }
        .buffer(Channel.RENDEZVOUS)
        .flowOn(Dispatchers.IO)

/**
 * Waits until it is taken; false where nobody takes it any more, since the collecting ended or `job`
 * was cancelled.
 */
private fun <T> hand(one: T, channel: SendChannel<T>, job: Job): Boolean =
    try {
        // A wait that did not belong to the job would go on when the job is cancelled.
        runBlocking(job) { channel.send(one) }
        true
    } catch (_: CancellationException) {
        false
    }
