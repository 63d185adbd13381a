import java.io.File
import java.nio.ByteBuffer
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.TimeoutCancellationException
import kotlinx.coroutines.async
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import org.adrenoc.AdrenocException
import org.adrenoc.Model
import org.adrenoc.sample.compute

private const val TRIES = 16

/** Runs in coroutines that are cancelled: OPENCL BUNDLE; the model runs for a while. */
fun main(words: Array<String>) {
    Model.fromFile(File(words[1]), Expect.options(words[0]).cancelWithin(1)).use { model ->
        val inputs = model.inputs().associate { it.name() to it.allocate() }
        val expected = model.run(inputs)
        model.run(inputs)
        val wholeMs = model.times().computeMs
        cancelOne(model, inputs, wholeMs)
        timeOut(model, inputs, wholeMs)
        cancelOfThree(model, inputs, expected, wholeMs)
        failAsItself(model, inputs)
        Expect.that(runBlocking { model.compute(inputs) } == expected, "the next run is right")
    }
}

/** Whoever waits is cancelled: the run has ended when the wait has, and no other error comes out. */
private fun cancelOne(model: Model, inputs: Map<String, ByteBuffer>, wholeMs: Double) =
    runBlocking {
        val before = model.times().runs
        val waits = List(TRIES) { turn ->
            var thrown: Throwable? = CancellationException("before it began")
            val waits = launch(Dispatchers.Default) {
                thrown = null
                try {
                    model.compute(inputs)
                } catch (error: Throwable) {
                    thrown = error
                    throw error
                }
            }
            delay((wholeMs * (turn % 8) / 8).toLong())
            waits.cancelAndJoin()
            Expect.that(thrown == null || thrown is CancellationException, "it is: $thrown")
            thrown
        }
        // A busy machine cancels some too late: those have run.
        val runs = model.times().runs - before
        Expect.that(runs < TRIES, "runs that were cancelled are no runs: $runs")
        Expect.that(waits.count { it == null } <= runs, "nobody is told of what was cancelled")
    }

private fun timeOut(model: Model, inputs: Map<String, ByteBuffer>, wholeMs: Double) = runBlocking {
    try {
        withTimeout((wholeMs / 4).toLong().coerceAtLeast(1)) { model.compute(inputs) }
        throw AssertionError("nothing timed out")
    } catch (error: TimeoutCancellationException) {
        Expect.that(error.message != null, "it says so")
    }
}

/** One of three is cancelled; the others are right. */
private fun cancelOfThree(
    model: Model,
    inputs: Map<String, ByteBuffer>,
    expected: Map<String, ByteBuffer>,
    wholeMs: Double,
) = runBlocking {
    repeat(6) { turn ->
        val three = List(3) { async(Dispatchers.Default) { model.compute(inputs) } }
        delay((wholeMs * turn / 3).toLong())
        three[1].cancelAndJoin()
        Expect.that(three[0].await() == expected && three[2].await() == expected, "both are right")
    }
}

/** What fails by itself is thrown as it is. */
private fun failAsItself(model: Model, inputs: Map<String, ByteBuffer>) = runBlocking {
    try {
        model.compute(mapOf("nothing" to inputs.values.first()))
        throw AssertionError("there is no such input")
    } catch (error: AdrenocException.BadArgument) {
        Expect.words(error, "nothing")
    }
}
