package org.adrenoc.sample

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import org.adrenoc.Message
import org.adrenoc.Model

/** A conversation with a language model, turn by turn. */
class Conversation(private val model: Model, system: String = "") : AutoCloseable {
    private val generation = model.generation().usual().maxTokens(MOST)
    private val messages = mutableListOf<Message>()

    init {
        if (system.isNotEmpty()) messages += Message.system(system)
    }

    /** The answer, in pieces; who stops collecting has it end there. One turn at a time. */
    fun say(text: String): Flow<String> = flow {
        val answer = StringBuilder()
        messages += Message.user(text)
        try {
            generation.streamAnswer(messages).collect { piece ->
                answer.append(piece)
                emit(piece)
            }
        } finally {
            // What was said stays; what nobody answered was not said.
            if (answer.isEmpty()) messages.removeAt(messages.lastIndex)
            else messages += Message.assistant(answer.toString())
        }
    }

    override fun close() = model.close()

    companion object {
        private const val MOST = 512

        /** Whether a model is one that makes tokens. */
        fun takes(model: Model): Boolean = model.inputs().any { it.name() == "past_length" }
    }
}
