package android.content;

import android.net.Uri;

public class Intent {
  public static final String ACTION_CREATE_DOCUMENT = "android.intent.action.CREATE_DOCUMENT";
  public static final String ACTION_SEND = "android.intent.action.SEND";
  public static final String CATEGORY_OPENABLE = "android.intent.category.OPENABLE";
  public static final String EXTRA_SUBJECT = "android.intent.extra.SUBJECT";
  public static final String EXTRA_TEXT = "android.intent.extra.TEXT";
  public static final String EXTRA_TITLE = "android.intent.extra.TITLE";

  public Intent(String action) {}

  public static native Intent createChooser(Intent target, CharSequence title);

  public native Intent addCategory(String category);

  public native Uri getData();

  public native Intent putExtra(String name, String value);

  public native Intent setType(String type);
}
