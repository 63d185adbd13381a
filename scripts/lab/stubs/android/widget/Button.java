package android.widget;

import android.content.Context;
import android.view.View;

public class Button extends View {
  public Button(Context context) {
    super(context);
  }

  public final native void setText(CharSequence text);
}
