import android.os.CancellationSignal;
import android.os.OperationCanceledException;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import org.adrenoc.AdrenocException;
import org.adrenoc.Generation;
import org.adrenoc.Message;
import org.adrenoc.Model;

/** A conversation: OPENCL BUNDLE COUNT SYSTEM TEXT...; prints the answers of so many tokens each. */
final class Chats {
  public static void main(String[] words) throws Exception {
    try (Model model = Model.fromFile(new File(words[1]), Expect.options(words[0]))) {
      Generation generation = model.generation().temperature(1).seed(7);
      generation.maxTokens(Integer.parseInt(words[2]));
      List<Message> messages = new ArrayList<>(List.of(Message.system(words[3])));
      for (int i = 4; i < words.length; i++) {
        messages.add(Message.user(words[i]));
        String answer = answer(generation, messages);
        System.out.println(shown(answer));
        messages.add(Message.assistant(answer));
      }
      tokens(generation);
      end(generation, messages.subList(0, 2));
      Class<AdrenocException.BadArgument> bad = AdrenocException.BadArgument.class;
      Expect.words(
          Expect.thrown(bad, () -> answer(generation, messages.subList(0, 3))),
          "nothing to answer");
    }
  }

  private static String answer(Generation generation, List<Message> messages) {
    StringBuilder text = new StringBuilder();
    generation.answer(
        messages,
        piece -> {
          text.append(piece);
          return true;
        });
    return text.toString();
  }

  /** As Python reads a line of it. */
  private static String shown(String answer) {
    String lines = answer.replace("\r\n", "\n").replace("\r", "\n");
    return lines.replace("\\", "\\\\").replace("\n", "\\n");
  }

  private static void tokens(Generation generation) {
    String text = "Café 你好 😀, don't";
    Expect.that(generation.decode(generation.encode(text)).equals(text), "a text comes back");
    StringBuilder more = new StringBuilder();
    generation.continueText(text, piece -> more.append(piece).length() < 4, null);
    Expect.that(more.length() > 0, "a text goes on");
  }

  /** By a text that stops, the listener, what it throws, and a signal. */
  private static void end(Generation generation, List<Message> messages) {
    String whole = answer(generation, messages);
    int letters = whole.codePointCount(0, whole.length());
    String half = whole.substring(whole.offsetByCodePoints(0, letters / 2));
    String before = answer(generation.stopTexts("never", half), messages);
    Expect.that(before.equals(whole.substring(0, whole.indexOf(half))), "a text stops it");
    generation.stopTexts();
    RuntimeException own = new RuntimeException("own");
    RuntimeException thrown =
        Expect.thrown(
            RuntimeException.class,
            () ->
                generation.answer(
                    messages,
                    piece -> {
                      throw own;
                    }));
    Expect.that(thrown == own, "what a listener throws comes out");
    CancellationSignal signal = new CancellationSignal();
    Expect.thrown(
        OperationCanceledException.class,
        () ->
            generation.answer(
                messages,
                piece -> {
                  signal.cancel();
                  return true;
                },
                signal));
    Expect.that(answer(generation, messages).equals(whole), "then all is as it was");
  }
}
