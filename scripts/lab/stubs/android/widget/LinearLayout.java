package android.widget;

import android.content.Context;
import android.view.View;

public class LinearLayout extends View {
  public static final int VERTICAL = 1;

  public LinearLayout(Context context) {
    super(context);
  }

  public native void addView(View child);

  public native void setOrientation(int orientation);
}
