package android.view;

import android.content.Context;

public abstract class ViewGroup extends View {
  /** How large a child is to be. */
  public static class LayoutParams {
    public static final int MATCH_PARENT = -1;

    public LayoutParams(int width, int height) {}
  }

  public ViewGroup(Context context) {
    super(context);
  }

  public native void addView(View child);

  public native void addView(View child, LayoutParams params);
}
