package android.app;

import android.content.ContentResolver;
import android.content.Context;
import android.content.Intent;
import android.content.res.AssetManager;
import android.os.Bundle;
import android.view.View;
import android.view.Window;
import java.io.File;

public class Activity extends Context {
  public static final int RESULT_OK = -1;

  protected void onCreate(Bundle savedInstanceState) {}

  protected void onActivityResult(int requestCode, int resultCode, Intent data) {}

  @Override
  public native AssetManager getAssets();

  @Override
  public native ContentResolver getContentResolver();

  @Override
  public native File getFilesDir();

  @Override
  public native void startActivity(Intent intent);

  public native Window getWindow();

  public final native void runOnUiThread(Runnable action);

  public native void setContentView(View view);

  public native void startActivityForResult(Intent intent, int requestCode);
}
