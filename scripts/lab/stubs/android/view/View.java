package android.view;

import android.content.Context;

public class View {
  /** Is told of a touch. */
  public interface OnClickListener {
    void onClick(View view);
  }

  public View(Context context) {}

  public native void setFitsSystemWindows(boolean fits);

  public native void setOnClickListener(OnClickListener listener);
}
