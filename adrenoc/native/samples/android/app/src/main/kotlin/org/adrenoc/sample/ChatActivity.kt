package org.adrenoc.sample

import android.app.Activity
import android.os.Bundle
import android.widget.Button
import android.widget.EditText
import android.widget.LinearLayout
import android.widget.ScrollView
import android.widget.TextView
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.MainScope
import kotlinx.coroutines.cancel
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext
import org.adrenoc.AdrenocException

/** Talks with the first language model of the assets; the button ends an answer that goes on. */
class ChatActivity : Activity() {
    private val scope = MainScope()
    private lateinit var said: TextView
    private lateinit var line: EditText
    private lateinit var button: Button
    private lateinit var scroll: ScrollView
    private var conversation: Conversation? = null
    private var answering: Job? = null

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        said = TextView(this).apply { setPadding(32, 96, 32, 32) }
        line = EditText(this).apply { hint = "Say something" }
        button = Button(this).apply { isEnabled = false }
        button.setOnClickListener { if (answering == null) ask() else answering?.cancel() }
        scroll = ScrollView(this).apply { addView(said) }
        val column = LinearLayout(this).apply { orientation = LinearLayout.VERTICAL }
        column.addView(scroll, LinearLayout.LayoutParams(MATCH, 0, 1f))
        column.addView(line)
        column.addView(button)
        setContentView(column)
        scope.launch { load() }
    }

    override fun onDestroy() {
        super.onDestroy()
        scope.cancel()
        // It waits for an answer that ends: not on the main thread.
        val last = conversation ?: return
        Thread { last.close() }.start()
    }

    private suspend fun load() {
        show("Loading ...\n")
        try {
            conversation = withContext(Dispatchers.IO) {
                findBundle(this@ChatActivity, Conversation::takes)?.let { Conversation(it, SYSTEM) }
            }
        } catch (error: AdrenocException) {
            show("${error.message}\n")
            return
        }
        if (conversation == null) show("No bundle among the assets is a language model.\n")
        else wait()
    }

    private fun wait() {
        button.text = "Send"
        button.isEnabled = true
    }

    private fun ask() {
        val text = line.text.toString().trim()
        if (text.isEmpty()) return
        line.text.clear()
        show("\n> $text\n")
        button.text = "Stop"
        answering = scope.launch {
            try {
                conversation?.say(text)?.collect { show(it) }
            } catch (error: AdrenocException) {
                show("\n${error.message}")
            } finally {
                show("\n")
                answering = null
                wait()
            }
        }
    }

    private fun show(piece: String) {
        said.append(piece)
        scroll.post { scroll.fullScroll(ScrollView.FOCUS_DOWN) }
    }

    private companion object {
        const val MATCH = LinearLayout.LayoutParams.MATCH_PARENT
        const val SYSTEM = "Answer in a few sentences."
    }
}
