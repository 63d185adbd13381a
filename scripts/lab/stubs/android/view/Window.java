package android.view;

public abstract class Window {
  public native void addFlags(int flags);
}
