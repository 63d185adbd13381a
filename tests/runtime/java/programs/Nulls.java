import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import org.adrenoc.AdrenocException;
import org.adrenoc.Model;

/** Past the checks of the classes, null for every object: OPENCL DECODER; nothing ends the process. */
final class Nulls {
  public static void main(String[] words) throws Exception {
    try (Model model = Model.fromFile(new File(words[1]), Expect.options(words[0]))) {
      System.out.println(callNatives(model));
      model.generation().generate(new long[] {3, 5}, token -> false);
    }
  }

  /** Each native function with null for all its objects; how many there are. */
  private static int callNatives(Model model) throws Exception {
    long handle = handleOf(model);
    int called = 0;
    for (Method method : Class.forName("org.adrenoc.Native").getDeclaredMethods()) {
      Class<?>[] types = method.getParameterTypes();
      Object[] values = new Object[types.length];
      boolean takesObject = false;
      for (int i = 0; i < types.length; i++) {
        values[i] = types[i] == long.class ? handle : types[i] == int.class ? (Object) 0 : null;
        values[i] = types[i] == boolean.class ? (Object) true : values[i];
        takesObject |= !types[i].isPrimitive();
      }
      if (!takesObject || !Modifier.isNative(method.getModifiers())) {
        continue;
      }
      method.setAccessible(true);
      called++;
      try {
        method.invoke(null, values);
        throw new AssertionError(method + " took null for an object");
      } catch (InvocationTargetException error) {
        Expect.that(
            error.getCause() instanceof AdrenocException.BadArgument,
            method + " refuses null: " + error.getCause());
      }
    }
    return called;
  }

  private static long handleOf(Model model) throws Exception {
    Field access = Model.class.getDeclaredField("access");
    access.setAccessible(true);
    Field handle = access.get(model).getClass().getDeclaredField("handle");
    handle.setAccessible(true);
    return handle.getLong(access.get(model));
  }
}
