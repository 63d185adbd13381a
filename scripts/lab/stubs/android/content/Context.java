package android.content;

import android.content.res.AssetManager;
import java.io.File;

public class Context {
  public native AssetManager getAssets();

  public native ContentResolver getContentResolver();

  public native File getFilesDir();

  public native void startActivity(Intent intent);
}
