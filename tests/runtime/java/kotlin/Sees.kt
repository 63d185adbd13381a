import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder
import org.adrenoc.Model
import org.adrenoc.sample.Classifier
import org.adrenoc.sample.Segmenter

private const val SIDE = 8

/** The sample's eyes: OPENCL, bundles whose scores are a picture's colours, and one of their means. */
fun main(words: Array<String>) {
    val options = { Expect.options(words[0]) }
    for (path in words.drop(1).dropLast(1)) {
        val model = Model.fromFile(File(path), options())
        Expect.that(Segmenter.takes(model) && !Classifier.takes(model), "$path segments")
        val kinds = model.outputs()[0].elements() / (SIDE * SIDE)
        Segmenter(model).use { checkOverlay(it, kinds.toInt()) }
    }
    val model = Model.fromFile(File(words.last()), options())
    Expect.that(Classifier.takes(model) && !Segmenter.takes(model), "it classifies")
    Classifier(model).use {
        // A green picture has most of its second channel.
        val answer = it.classify(picture { _ -> 0xFF00FF00 }, SIDE, SIDE, 4 * SIDE, 0)
        Expect.that(answer.number == 1, "green is the second: ${answer.number}")
    }
    println(words.size - 2)
}

/** The left half is red, the right one green; half a turn moves them. */
private fun checkOverlay(segmenter: Segmenter, kinds: Int) {
    val halves = picture { x -> if (x < SIDE / 2) 0xFF0000FF else 0xFF00FF00 }
    for (degrees in listOf(0, 180)) {
        val shown = segmenter.segment(halves, SIDE, SIDE, 4 * SIDE, degrees)
        Expect.that(shown.width == SIDE && shown.height == SIDE, "a colour for each pixel")
        val isRed = { at: Int -> (at % SIDE < SIDE / 2) == (degrees == 0) }
        // Of one layer red is what is there; of three it is the first kind, which has no colour.
        val (clear, tinted) = shown.colours.indices.partition { isRed(it) == (kinds > 1) }
        Expect.that(clear.all { shown.colours[it] == 0 }, "nothing is drawn over the first kind")
        Expect.that(tinted.all { shown.colours[it] == shown.colours[tinted[0]] }, "one colour")
        Expect.that(shown.colours[tinted[0]] ushr 24 == 0x80, "half of it is seen through")
    }
}

/** RGBA of bytes, little-endian: 0xAABBGGRR. */
private fun picture(colour: (Int) -> Long): ByteBuffer {
    val made = ByteBuffer.allocateDirect(4 * SIDE * SIDE).order(ByteOrder.LITTLE_ENDIAN)
    for (at in 0 until SIDE * SIDE) made.putInt(colour(at % SIDE).toInt())
    made.flip()
    return made
}
