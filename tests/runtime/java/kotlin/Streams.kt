import java.io.File
import java.util.concurrent.CountDownLatch
import kotlin.concurrent.thread
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.collect
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import org.adrenoc.AdrenocException
import org.adrenoc.Generation
import org.adrenoc.Model
import org.adrenoc.sample.stream

private const val LIMIT_MS = 20_000L

/** Tokens as a flow: OPENCL BUNDLE ID,ID,...; prints them until the context is full. */
fun main(words: Array<String>) {
    val prompt = words[2].split(",").map { it.toLong() }.toLongArray()
    Model.fromFile(File(words[1]), Expect.options(words[0])).use { model ->
        val generation = model.generation()
        val all = fill(generation, prompt)
        println(all.joinToString(" "))
        takeSome(generation, prompt, all)
        cancel(generation, prompt, all)
        cancelBusy(generation, prompt)
    }
}

private fun fill(generation: Generation, prompt: LongArray): List<Long> = runBlocking {
    val all = mutableListOf<Long>()
    try {
        withTimeout(LIMIT_MS) { generation.stream(prompt).collect { all += it } }
        throw AssertionError("the context is full, and nobody was told")
    } catch (error: AdrenocException.ContextFull) {
        all
    }
}

private fun takeSome(generation: Generation, prompt: LongArray, all: List<Long>) = runBlocking {
    generation.rewind(0)
    val three = withTimeout(LIMIT_MS) { generation.stream(prompt).take(3).toList() }
    Expect.that(three == all.take(3), "the first three: $three")
}

/** Whoever collects is cancelled while it waits, having seen two tokens. */
private fun cancel(generation: Generation, prompt: LongArray, all: List<Long>) = runBlocking {
    generation.rewind(0)
    val seen = mutableListOf<Long>()
    val collecting = launch(Dispatchers.Default) {
        generation.stream(prompt).collect {
            seen += it
            if (seen.size == 2) delay(Long.MAX_VALUE)
        }
    }
    while (seen.size < 2) delay(1)
    withTimeout(LIMIT_MS) { collecting.cancelAndJoin() }
    Expect.that(seen == all.take(2), "no token after the cancellation: $seen")
}

/** It is cancelled before the first token, while the model does something else. */
private fun cancelBusy(generation: Generation, prompt: LongArray) = runBlocking {
    generation.rewind(0)
    val busy = CountDownLatch(1)
    val free = CountDownLatch(1)
    val other = thread {
        generation.maxTokens(1).generate(prompt) { busy.countDown(); free.await(); true }
    }
    busy.await()
    generation.maxTokens(0)
    val seen = mutableListOf<Long>()
    val collecting = launch(Dispatchers.Default) {
        generation.stream(prompt).collect { seen += it }
    }
    delay(100)
    collecting.cancel()
    free.countDown()
    other.join()
    withTimeout(LIMIT_MS) { collecting.join() }
    Expect.that(seen.isEmpty(), "it was cancelled before it saw: $seen")
    Expect.that(generation.tokens() < generation.capacity(), "nobody made all that fit")
}
