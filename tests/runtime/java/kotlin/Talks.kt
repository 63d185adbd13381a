import java.io.File
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.runBlocking
import org.adrenoc.Message
import org.adrenoc.Model
import org.adrenoc.sample.Conversation

/** The sample's conversation: OPENCL BUNDLE TEXT...; each turn is that of a model that kept nothing. */
fun main(words: Array<String>) {
    val texts = words.drop(2)
    val turns = Model.fromFile(File(words[1]), Expect.options(words[0])).let { model ->
        Expect.that(Conversation.takes(model), "it makes tokens")
        Conversation(model, "Be short.").use { talk -> runBlocking { talk(talk, texts) } }
    }
    Model.fromFile(File(words[1]), Expect.options(words[0])).use { model ->
        val messages = mutableListOf(Message.system("Be short."))
        for ((text, answer) in texts.zip(turns)) {
            messages += Message.user(text)
            val whole = StringBuilder()
            val generation = model.generation().temperature(0.7f).topP(0.875f).maxTokens(512)
            generation.rewind(0)
            generation.answer(messages) { whole.append(it).length < answer.length }
            Expect.that(whole.toString() == answer, "the same answer: $whole, $answer")
            messages += Message.assistant(answer)
        }
    }
    println(turns.size)
}

// Who stops collecting has that much of an answer.
private suspend fun talk(talk: Conversation, texts: List<String>): List<String> =
    texts.map { text -> talk.say(text).take(3).toList().joinToString("") }
