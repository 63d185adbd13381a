package android.view;

public interface WindowManager {
  /** How a window lies on the screen. */
  class LayoutParams {
    public static final int FLAG_KEEP_SCREEN_ON = 0x80;
  }
}
