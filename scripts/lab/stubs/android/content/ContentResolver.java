package android.content;

import android.net.Uri;
import java.io.FileNotFoundException;
import java.io.OutputStream;

public abstract class ContentResolver {
  public final native OutputStream openOutputStream(Uri uri) throws FileNotFoundException;
}
