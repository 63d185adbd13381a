package android.webkit;

import android.content.Context;
import android.view.View;

public class WebView extends View {
  public WebView(Context context) {
    super(context);
  }

  public native WebSettings getSettings();

  public native void loadDataWithBaseURL(
      String baseUrl, String data, String mimeType, String encoding, String historyUrl);
}
