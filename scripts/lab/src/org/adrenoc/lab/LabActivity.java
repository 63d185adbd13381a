package org.adrenoc.lab;

import android.app.Activity;
import android.content.Intent;
import android.os.Build;
import android.os.Bundle;
import android.view.View;
import android.view.WindowManager;
import android.webkit.WebView;
import android.widget.Button;
import android.widget.LinearLayout;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.adrenoc.Model;
import org.adrenoc.Options;

/** The screen: what will be done, Begin, figures as they come, and the report to save or to send. */
public final class LabActivity extends Activity implements Lab.Contents {
  private static final int SAVE = 1;
  private static final String WELCOME =
      "Begin runs every kind of kernel on this phone's GPU and compares the numbers, then times three"
          + " networks and a language model: ten minutes or so, with the phone cool and charging. Nothing is sent. The"
          + " report holds figures and the words of GPU and driver; read it before you share it.";
  private static final String AGAIN =
      " If a step does not end within some minutes, close the app and begin again: it goes on"
          + " after that step, and says so.";
  private static final String DONE =
      "All is done. Share the report: it has figures, the words of GPU and driver, and no name.";

  // Null where the app itself is broken, which the page says.
  private Lab lab;
  private WebView page;
  private boolean isRunning;

  @Override
  protected void onCreate(Bundle saved) {
    super.onCreate(saved);
    page = new WebView(this);
    page.getSettings().setJavaScriptEnabled(true);
    LinearLayout buttons = new LinearLayout(this);
    buttons.addView(button("Begin", view -> begin()));
    buttons.addView(button("Save report", view -> save()));
    buttons.addView(button("Share report", view -> share()));
    LinearLayout all = new LinearLayout(this);
    all.setOrientation(LinearLayout.VERTICAL);
    all.setFitsSystemWindows(true);
    all.addView(buttons);
    int whole = LinearLayout.LayoutParams.MATCH_PARENT;
    all.addView(page, new LinearLayout.LayoutParams(whole, 0, 1)); // what the buttons leave
    setContentView(all);
    try {
      File journal = new File(getFilesDir(), "journal");
      lab = new Lab(this, new Options(), journal, "Android, API " + Build.VERSION.SDK_INT);
      show(lab.isDone() ? DONE : WELCOME);
    } catch (IOException | RuntimeException | LinkageError error) {
      showText("The app cannot work on this phone: " + error);
    }
  }

  private Button button(String text, View.OnClickListener listener) {
    Button made = new Button(this);
    made.setText(text);
    made.setOnClickListener(listener);
    return made;
  }

  private void begin() {
    if (lab == null || isRunning) {
      return;
    }
    isRunning = true;
    getWindow().addFlags(WindowManager.LayoutParams.FLAG_KEEP_SCREEN_ON);
    new Thread(this::runLab).start();
  }

  private void runLab() {
    String end = DONE;
    try {
      if (lab.isDone()) {
        lab.clear();
      }
      lab.run(step -> runOnUiThread(() -> show("Now: " + step + "." + AGAIN)));
    } catch (IOException | RuntimeException error) {
      end = "It stopped: " + error;
    }
    String last = end;
    runOnUiThread(
        () -> {
          isRunning = false;
          show(last);
        });
  }

  private void show(String now) {
    try {
      showText(lab.page(now));
    } catch (IOException error) {
      showText(String.valueOf(error));
    }
  }

  private void showText(String html) {
    page.loadDataWithBaseURL(null, html, "text/html", "utf-8", null);
  }

  private void share() {
    if (lab != null) {
      Intent intent = new Intent(Intent.ACTION_SEND).setType("text/plain");
      intent.putExtra(Intent.EXTRA_SUBJECT, "adrenoc-lab.json");
      intent.putExtra(Intent.EXTRA_TEXT, lab.report());
      startActivity(Intent.createChooser(intent, "Share report"));
    }
  }

  private void save() {
    Intent intent = new Intent(Intent.ACTION_CREATE_DOCUMENT).setType("application/json");
    intent.addCategory(Intent.CATEGORY_OPENABLE);
    intent.putExtra(Intent.EXTRA_TITLE, "adrenoc-lab.json");
    startActivityForResult(intent, SAVE);
  }

  @Override
  protected void onActivityResult(int request, int result, Intent data) {
    if (request != SAVE || result != RESULT_OK || lab == null) {
      return;
    }
    try (OutputStream to = getContentResolver().openOutputStream(data.getData())) {
      to.write(lab.report().getBytes(StandardCharsets.UTF_8));
      show("The report is saved.");
    } catch (IOException error) {
      show("The report cannot be saved: " + error.getMessage());
    }
  }

  @Override
  public Model load(String name, Options options) {
    return Model.fromAsset(getAssets(), name, options);
  }

  @Override
  public ByteBuffer read(String name) throws IOException {
    try (InputStream from = getAssets().open(name)) {
      ByteArrayOutputStream to = new ByteArrayOutputStream();
      byte[] part = new byte[1 << 16];
      for (int count = from.read(part); count >= 0; count = from.read(part)) {
        to.write(part, 0, count);
      }
      ByteBuffer direct = ByteBuffer.allocateDirect(to.size());
      direct.put(to.toByteArray()).flip();
      return direct;
    }
  }
}
