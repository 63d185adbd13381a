package android.widget;

import android.content.Context;
import android.view.ViewGroup;

public class LinearLayout extends ViewGroup {
  public static final int VERTICAL = 1;

  /** A child's share of what is left. */
  public static class LayoutParams extends ViewGroup.LayoutParams {
    public LayoutParams(int width, int height, float weight) {
      super(width, height);
    }
  }

  public LinearLayout(Context context) {
    super(context);
  }

  public native void setOrientation(int orientation);
}
