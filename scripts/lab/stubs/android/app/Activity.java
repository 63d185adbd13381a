package android.app;

import android.content.Context;
import android.content.Intent;
import android.os.Bundle;
import android.view.View;
import android.view.Window;

public class Activity extends Context {
  public static final int RESULT_OK = -1;

  protected void onCreate(Bundle savedInstanceState) {}

  protected void onActivityResult(int requestCode, int resultCode, Intent data) {}

  public native Window getWindow();

  public final native void runOnUiThread(Runnable action);

  public native void setContentView(View view);

  public native void startActivityForResult(Intent intent, int requestCode);
}
