import static org.objectweb.asm.Opcodes.*;

import java.io.IOException;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Handle;
import org.objectweb.asm.Label;
import org.objectweb.asm.Type;
import org.objectweb.asm.commons.GeneratorAdapter;
import org.objectweb.asm.commons.Method;
import org.objectweb.asm.tree.*;
import org.objectweb.asm.tree.analysis.Analyzer;
import org.objectweb.asm.tree.analysis.AnalyzerException;
import org.objectweb.asm.tree.analysis.BasicInterpreter;
import org.objectweb.asm.tree.analysis.BasicValue;
import org.objectweb.asm.tree.analysis.Frame;

/**
 * Class files of Java 8 as text of smali, where Android's d8 is not to be had: FOLDER CLASS...
 *
 * Nothing is clever: each local and each place of the stack is a register of its own, above a few
 * that operands with small numbers pass through. Lambdas become classes, as d8 makes them. What it
 * does not know it refuses.
 */
final class Dex {
  private static final int SCRATCH = 6;
  private static final String[] CONDITIONS = {"eq", "ne", "lt", "ge", "gt", "le"};
  private static final String[] ARITHMETIC = {
    "add", "sub", "mul", "div", "rem", "neg", "shl", "shr", "ushr", "and", "or", "xor"
  };
  private static final String[] KINDS = {"int", "long", "float", "double"};
  private static final String[] ARRAYS = {"", "-wide", "", "-wide", "-object", "-byte", "-char", "-short"};
  private static final String[] PRIMITIVES = {"Z", "C", "F", "D", "B", "S", "I", "J"};
  private static final Deque<ClassNode> waiting = new ArrayDeque<>();
  private static final Set<String> opened = new HashSet<>();

  public static void main(String[] words) throws IOException, AnalyzerException {
    for (int i = 1; i < words.length; i++) {
      ClassNode node = new ClassNode();
      new ClassReader(Files.readAllBytes(Path.of(words[i]))).accept(node, 0);
      waiting.add(node);
    }
    while (!waiting.isEmpty()) {
      ClassNode node = waiting.remove();
      replaceLambdas(node);
      Path file = Path.of(words[0], node.name + ".smali");
      Files.createDirectories(file.getParent());
      Files.write(file, textOf(node).getBytes(StandardCharsets.UTF_8));
    }
  }

  // Lambdas

  private static void replaceLambdas(ClassNode node) {
    int count = 0;
    for (MethodNode method : node.methods) {
      for (AbstractInsnNode at : method.instructions.toArray()) {
        if (at instanceof InvokeDynamicInsnNode) {
          InvokeDynamicInsnNode made = (InvokeDynamicInsnNode) at;
          if (!made.bsm.getName().equals("metafactory")) {
            throw new IllegalArgumentException(node.name + ": " + made.bsm);
          }
          String name = node.name + "$$Lambda$" + count++;
          waiting.add(lambda(name, node, made));
          method.instructions.set(at, new MethodInsnNode(INVOKESTATIC, name, "make", made.desc, false));
        }
      }
    }
  }

  /** A class that holds what is captured, and calls what the lambda became. */
  private static ClassNode lambda(String name, ClassNode owner, InvokeDynamicInsnNode made) {
    Type[] captured = Type.getArgumentTypes(made.desc);
    Type self = Type.getObjectType(name), kind = Type.getReturnType(made.desc);
    ClassWriter writer = new ClassWriter(ClassWriter.COMPUTE_MAXS);
    writer.visit(V1_8, ACC_FINAL | ACC_SYNTHETIC, name, null, "java/lang/Object",
        new String[] {kind.getInternalName()});
    Method init = new Method("<init>", Type.VOID_TYPE, captured);
    GeneratorAdapter code = new GeneratorAdapter(0, init, null, null, writer);
    code.loadThis();
    code.invokeConstructor(Type.getType(Object.class), new Method("<init>", "()V"));
    for (int i = 0; i < captured.length; i++) {
      writer.visitField(ACC_FINAL, "f" + i, captured[i].getDescriptor(), null, null);
      code.loadThis();
      code.loadArg(i);
      code.putField(self, "f" + i, captured[i]);
    }
    code.returnValue();
    code.endMethod();
    code = new GeneratorAdapter(ACC_STATIC, new Method("make", made.desc), null, null, writer);
    code.newInstance(self);
    code.dup();
    code.loadArgs();
    code.invokeConstructor(self, init);
    code.returnValue();
    code.endMethod();
    forward(writer, self, owner, made, captured);
    ClassNode node = new ClassNode();
    new ClassReader(writer.toByteArray()).accept(node, 0);
    return node;
  }

  private static void forward(
      ClassWriter writer, Type self, ClassNode owner, InvokeDynamicInsnNode made, Type[] captured) {
    Method asked = new Method(made.name, ((Type) made.bsmArgs[0]).getDescriptor());
    Handle called = (Handle) made.bsmArgs[1];
    Type[] told = ((Type) made.bsmArgs[2]).getArgumentTypes();
    GeneratorAdapter code = new GeneratorAdapter(ACC_PUBLIC, asked, null, null, writer);
    Type place = Type.getObjectType(called.getOwner());
    List<Type> takes = new ArrayList<>(List.of(Type.getArgumentTypes(called.getDesc())));
    boolean makes = called.getTag() == H_NEWINVOKESPECIAL;
    if (makes) {
      code.newInstance(place);
      code.dup();
    } else if (called.getTag() != H_INVOKESTATIC) {
      takes.add(0, place);
    }
    for (int i = 0; i < takes.size(); i++) {
      int own = i - captured.length;
      if (own < 0) {
        code.loadThis();
        code.getField(self, "f" + i, captured[i]);
      } else {
        code.loadArg(own);
        convert(code, asked.getArgumentTypes()[own], told[own]);
        convert(code, told[own], takes.get(i));
      }
    }
    Method target = new Method(called.getName(), called.getDesc());
    for (MethodNode method : owner.methods) {
      boolean same = owner.name.equals(called.getOwner()) && method.name.equals(called.getName());
      if (same && method.desc.equals(called.getDesc()) && (method.access & ACC_PRIVATE) != 0) {
        method.access &= ~ACC_PRIVATE; // the lambda's class calls it
        opened.add(owner.name + method.name + method.desc);
      }
    }
    switch (called.getTag()) {
      case H_INVOKESTATIC:
        code.visitMethodInsn(
            INVOKESTATIC, called.getOwner(), called.getName(), called.getDesc(), called.isInterface());
        break;
      case H_INVOKEINTERFACE:
        code.invokeInterface(place, target);
        break;
      case H_NEWINVOKESPECIAL:
        code.invokeConstructor(place, target);
        break;
      default:
        code.invokeVirtual(place, target);
    }
    Type gives = makes ? place : target.getReturnType();
    if (asked.getReturnType() == Type.VOID_TYPE) {
      if (gives.getSize() == 2) {
        code.pop2();
      } else if (gives.getSize() == 1) {
        code.pop();
      }
    } else {
      convert(code, gives, ((Type) made.bsmArgs[2]).getReturnType());
      convert(code, ((Type) made.bsmArgs[2]).getReturnType(), asked.getReturnType());
    }
    code.returnValue();
    code.endMethod();
  }

  private static void convert(GeneratorAdapter code, Type from, Type to) {
    boolean wasObject = from.getSort() >= Type.ARRAY, isObject = to.getSort() >= Type.ARRAY;
    if (from.equals(to)) {
      return;
    }
    if (wasObject && isObject) {
      code.checkCast(to);
    } else if (wasObject) {
      code.unbox(to);
    } else if (isObject) {
      code.valueOf(from);
    } else {
      code.cast(from, to);
    }
  }

  /** What dex has no flag for: enters before the first instruction, exits however the method ends. */
  private static void lock(MethodNode method) {
    if ((method.access & ACC_STATIC) != 0) {
      throw new IllegalArgumentException(method.name + " is static synchronized");
    }
    method.access &= ~ACC_SYNCHRONIZED;
    LabelNode start = new LabelNode(), end = new LabelNode();
    for (AbstractInsnNode at : method.instructions.toArray()) {
      if (at.getOpcode() >= IRETURN && at.getOpcode() <= RETURN) {
        method.instructions.insertBefore(at, new VarInsnNode(ALOAD, 0));
        method.instructions.insertBefore(at, new InsnNode(MONITOREXIT));
      }
    }
    InsnList before = new InsnList();
    before.add(new VarInsnNode(ALOAD, 0));
    before.add(new InsnNode(MONITORENTER));
    before.add(start);
    method.instructions.insert(before);
    method.instructions.add(end);
    method.instructions.add(new VarInsnNode(ALOAD, 0));
    method.instructions.add(new InsnNode(MONITOREXIT));
    method.instructions.add(new InsnNode(ATHROW));
    method.tryCatchBlocks.add(new TryCatchBlockNode(start, end, end, null));
    method.maxStack += 2;
  }

  // Text

  private static String textOf(ClassNode node) throws AnalyzerException {
    StringBuilder text = new StringBuilder(".class " + words(node.access & ~ACC_SUPER) + "L" + node.name);
    text.append(";\n.super L").append(node.superName).append(";\n");
    node.interfaces.forEach(name -> text.append(".implements L").append(name).append(";\n"));
    for (FieldNode field : node.fields) {
      text.append(".field ").append(words(field.access)).append(field.name).append(":" + field.desc + "\n");
    }
    for (MethodNode method : node.methods) {
      boolean isBuilder = method.name.startsWith("<");
      if ((method.access & ACC_SYNCHRONIZED) != 0) {
        lock(method);
      }
      text.append(".method ").append(words(method.access & ~(ACC_BRIDGE | ACC_VARARGS)));
      text.append(isBuilder ? "constructor " : "").append(method.name).append(method.desc).append('\n');
      if ((method.access & (ACC_ABSTRACT | ACC_NATIVE)) == 0) {
        text.append(new Dex(node, method).code());
      }
      text.append(".end method\n");
    }
    return text.toString();
  }

  /** The words of flags, which smali has as Java has them. */
  private static String words(int access) {
    String more = ((access & ACC_SYNTHETIC) != 0 ? "synthetic " : "") + ((access & ACC_ENUM) != 0 ? "enum " : "");
    return Modifier.toString(access) + " " + more;
  }

  // The code of one method

  private final ClassNode owner;
  private final MethodNode method;
  private final StringBuilder text = new StringBuilder();
  private final StringBuilder tables = new StringBuilder();
  private final Map<Label, Integer> labels = new HashMap<>();
  private Frame<BasicValue> frame;
  private int top;

  private Dex(ClassNode owner, MethodNode method) {
    this.owner = owner;
    this.method = method;
  }

  private String code() throws AnalyzerException {
    Frame<BasicValue>[] frames = new Analyzer<>(new BasicInterpreter()).analyze(owner.name, method);
    int held = SCRATCH + method.maxLocals + method.maxStack;
    boolean isStatic = (method.access & ACC_STATIC) != 0;
    int words = (Type.getArgumentsAndReturnSizes(method.desc) >> 2) - (isStatic ? 1 : 0);
    if (held > 256) {
      throw new IllegalArgumentException(owner.name + "." + method.name + " has too many locals");
    }
    add(".registers " + (held + words));
    int local = 0;
    if (!isStatic) {
      move("-object", SCRATCH + local++, held);
    }
    for (Type type : Type.getArgumentTypes(method.desc)) {
      move(kind(type), SCRATCH + local, held + local);
      local += type.getSize();
    }
    Set<LabelNode> handlers = new HashSet<>();
    for (TryCatchBlockNode block : method.tryCatchBlocks) {
      handlers.add(block.handler);
    }
    for (int i = 0; i < frames.length; i++) {
      AbstractInsnNode at = method.instructions.get(i);
      frame = frames[i];
      if (at instanceof LabelNode) {
        add(label((LabelNode) at));
        if (handlers.contains(at) && frame != null) {
          add("move-exception v0");
          move("-object", SCRATCH + method.maxLocals, 0);
        }
      } else if (at instanceof LineNumberNode) {
        add(".line " + ((LineNumberNode) at).line);
      } else if (at.getOpcode() >= 0 && frame != null) {
        top = frame.getStackSize();
        instruction(at, at.getOpcode());
      }
    }
    for (TryCatchBlockNode block : method.tryCatchBlocks) {
      String kind = block.type == null ? ".catchall" : ".catch L" + block.type + ";";
      add(kind + " {" + label(block.start) + " .. " + label(block.end) + "} " + label(block.handler));
    }
    return text.append(tables).toString();
  }

  private void instruction(AbstractInsnNode at, int op) {
    if (at instanceof VarInsnNode) {
      int local = SCRATCH + ((VarInsnNode) at).var;
      String kind = ARRAYS[op >= ISTORE ? op - ISTORE : op - ILOAD];
      move(kind, op >= ISTORE ? local : place(top), op >= ISTORE ? place(top - 1) : local);
    } else if (at instanceof IincInsnNode) {
      int local = SCRATCH + ((IincInsnNode) at).var;
      add("const v0, " + ((IincInsnNode) at).incr);
      add("add-int " + v(local) + ", " + v(local) + ", v0");
    } else if (at instanceof LdcInsnNode) {
      constant(((LdcInsnNode) at).cst);
    } else if (op >= ACONST_NULL && op <= DCONST_1) {
      constant(
          op == ACONST_NULL ? (Object) 0
              : op <= ICONST_5 ? (Object) (op - ICONST_0)
              : op <= LCONST_1 ? (Object) (long) (op - LCONST_0)
              : op <= FCONST_2 ? (Object) (float) (op - FCONST_0) : (Object) (double) (op - DCONST_0));
    } else if (op == BIPUSH || op == SIPUSH) {
      constant(((IntInsnNode) at).operand);
    } else if (op >= IALOAD && op <= SALOAD) {
      add("aget" + ARRAYS[op - IALOAD] + " " + v(place(top - 2)) + ", " + s(top - 2) + ", " + s(top - 1));
    } else if (op >= IASTORE && op <= SASTORE) {
      add("aput" + ARRAYS[op - IASTORE] + " " + s(top - 1) + ", " + s(top - 3) + ", " + s(top - 2));
    } else if (op >= DUP && op <= SWAP) {
      arrange(op);
    } else if (op >= IADD && op <= LXOR) {
      arithmetic(op);
    } else if (op >= I2L && op <= I2S) {
      convert(op);
    } else if (op >= LCMP && op <= DCMPG) {
      String[] names = {"cmp-long", "cmpl-float", "cmpg-float", "cmpl-double", "cmpg-double"};
      add(names[op - LCMP] + " " + s(top - 2) + ", " + s(top - 2) + ", " + s(top - 1));
    } else if (at instanceof JumpInsnNode) {
      jump(op, label(((JumpInsnNode) at).label));
    } else if (at instanceof LookupSwitchInsnNode) {
      LookupSwitchInsnNode table = (LookupSwitchInsnNode) at;
      choose(table.keys, table.labels, table.dflt);
    } else if (at instanceof TableSwitchInsnNode) {
      TableSwitchInsnNode table = (TableSwitchInsnNode) at;
      List<Integer> keys = new ArrayList<>();
      table.labels.forEach(label -> keys.add(table.min + keys.size()));
      choose(keys, table.labels, table.dflt);
    } else if (op >= IRETURN && op <= RETURN) {
      add(op == RETURN ? "return-void" : "return" + ARRAYS[op - IRETURN] + " " + s(top - 1));
    } else if (at instanceof FieldInsnNode) {
      field((FieldInsnNode) at, op);
    } else if (at instanceof MethodInsnNode) {
      call((MethodInsnNode) at, op);
    } else if (at instanceof TypeInsnNode) {
      typed(((TypeInsnNode) at).desc, op);
    } else if (op == NEWARRAY && ((IntInsnNode) at).operand != T_BOOLEAN) {
      array("[" + PRIMITIVES[((IntInsnNode) at).operand - T_BOOLEAN]);
    } else if (op == ARRAYLENGTH) {
      move("-object", 0, place(top - 1));
      add("array-length v0, v0");
      move("", place(top - 1), 0);
    } else if (op == ATHROW) {
      add("throw " + s(top - 1));
    } else if (op == MONITORENTER || op == MONITOREXIT) {
      // By the local that both have, so that Android's verifier sees that they belong together.
      boolean isHeld = at.getPrevious() instanceof VarInsnNode;
      String by = isHeld ? v(SCRATCH + ((VarInsnNode) at.getPrevious()).var) : s(top - 1);
      add((op == MONITORENTER ? "monitor-enter " : "monitor-exit ") + by);
    } else if (op != POP && op != POP2 && op != NOP) {
      throw new IllegalArgumentException(owner.name + "." + method.name + ": instruction " + op);
    }
  }

  private void constant(Object value) {
    String to = v(place(top)) + ", ";
    if (value instanceof Integer) {
      add("const " + to + value);
    } else if (value instanceof Float) {
      add("const " + to + Float.floatToRawIntBits((Float) value));
    } else if (value instanceof Long) {
      add("const-wide " + to + value + "L");
    } else if (value instanceof Double) {
      add("const-wide " + to + Double.doubleToRawLongBits((Double) value) + "L");
    } else if (value instanceof Type) {
      add("const-class " + to + ((Type) value).getDescriptor());
    } else {
      StringBuilder quoted = new StringBuilder("\"");
      for (char letter : ((String) value).toCharArray()) {
        boolean plain = letter >= ' ' && letter <= '~' && letter != '"' && letter != '\\';
        quoted.append(plain ? String.valueOf(letter) : String.format("\\u%04x", (int) letter));
      }
      add("const-string/jumbo " + to + quoted + "\"");
    }
  }

  /** Takes the uppermost values, and lays them down again in the order that is told. */
  private void arrange(int op) {
    boolean wide = size(top - 1) == 2, next = top > 1 && size(top - 2) == 2;
    String order =
        op == DUP || (op == DUP2 && wide) ? "aa"
            : op == SWAP ? "ba"
            : op == DUP2 ? "abab"
            : op == DUP_X1 || (op == DUP_X2 && next) || (op == DUP2_X1 && wide) ? "bab"
            : op == DUP_X2 || (op == DUP2_X2 && wide && !next) ? "cabc"
            : op == DUP2_X2 && wide ? "bab"
            : op == DUP2_X1 || size(top - 3) == 2 ? "bcabc" : "cdabcd";
    int count = order.chars().max().getAsInt() - 'a' + 1;
    int[] held = new int[count];
    for (int i = 0, free = 0; i < count; free += size(top - count + i++)) {
      held[i] = free;
      move(kind(top - count + i), free, place(top - count + i));
    }
    int to = place(top - count);
    for (char letter : order.toCharArray()) {
      int which = letter - 'a';
      move(kind(top - count + which), to, held[which]);
      to += size(top - count + which);
    }
  }

  private void arithmetic(int op) {
    boolean isShift = op >= ISHL && op <= LUSHR, isBits = op >= ISHL;
    int index = isBits ? 6 + (op - ISHL) / 2 : (op - IADD) / 4;
    String kind = KINDS[isBits ? (op - ISHL) % 2 : (op - IADD) % 4];
    String name = ARITHMETIC[index] + "-" + kind;
    if (index == 5) {
      move(kind(top - 1), 0, place(top - 1));
      add(name + " v0, v0");
      move(kind(top - 1), place(top - 1), 0);
    } else {
      add(name + " " + s(top - 2) + ", " + s(top - 2) + ", " + s(top - 1));
    }
  }

  private void convert(int op) {
    String[] names = {
      "int-to-long", "int-to-float", "int-to-double", "long-to-int", "long-to-float", "long-to-double",
      "float-to-int", "float-to-long", "float-to-double", "double-to-int", "double-to-long",
      "double-to-float", "int-to-byte", "int-to-char", "int-to-short"
    };
    String name = names[op - I2L];
    boolean isWide = name.endsWith("long") || name.endsWith("double");
    move(kind(top - 1), 0, place(top - 1));
    add(name + " v2, v0");
    move(isWide ? "-wide" : "", place(top - 1), 2);
  }

  private void jump(int op, String to) {
    if (op == GOTO) {
      add("goto/32 " + to);
    } else if (op >= IF_ICMPEQ && op <= IF_ACMPNE) {
      boolean isObject = op >= IF_ACMPEQ;
      move(isObject ? "-object" : "", 0, place(top - 2));
      move(isObject ? "-object" : "", 1, place(top - 1));
      add("if-" + CONDITIONS[isObject ? op - IF_ACMPEQ : op - IF_ICMPEQ] + " v0, v1, " + to);
    } else {
      int which = op == IFNULL ? 0 : op == IFNONNULL ? 1 : op - IFEQ;
      add("if-" + CONDITIONS[which] + "z " + s(top - 1) + ", " + to);
    }
  }

  private void choose(List<Integer> keys, List<LabelNode> places, LabelNode otherwise) {
    String table = ":table" + text.length();
    add("sparse-switch " + s(top - 1) + ", " + table);
    add("goto/32 " + label(otherwise));
    tables.append(table).append("\n.sparse-switch\n");
    for (int i = 0; i < keys.size(); i++) {
      tables.append(keys.get(i)).append(" -> ").append(label(places.get(i))).append('\n');
    }
    tables.append(".end sparse-switch\n");
  }

  private void field(FieldInsnNode at, int op) {
    Type type = Type.getType(at.desc);
    String[] small = {"-boolean", "-char", "-byte", "-short"};
    int sort = type.getSort();
    String kind = sort >= Type.BOOLEAN && sort <= Type.SHORT ? small[sort - Type.BOOLEAN] : kind(type);
    String named = ", L" + at.owner + ";->" + at.name + ":" + at.desc;
    if (op == GETSTATIC) {
      add("sget" + kind + " " + v(place(top)) + named);
    } else if (op == PUTSTATIC) {
      add("sput" + kind + " " + s(top - 1) + named);
    } else if (op == GETFIELD) {
      move("-object", 0, place(top - 1));
      add("iget" + kind + " v2, v0" + named);
      move(kind(type), place(top - 1), 2);
    } else {
      move(kind(type), 0, place(top - 1));
      move("-object", 2, place(top - 2));
      add("iput" + kind + " v0, v2" + named);
    }
  }

  private void call(MethodInsnNode at, int op) {
    int count = Type.getArgumentTypes(at.desc).length + (op == INVOKESTATIC ? 0 : 1);
    boolean isOpen = opened.contains(at.owner + at.name + at.desc);
    boolean isOwn = at.owner.equals(owner.name) || at.name.equals("<init>");
    String special = !isOwn ? "super" : isOpen ? "virtual" : "direct";
    String kind =
        op == INVOKESTATIC ? "static"
            : op == INVOKEINTERFACE ? "interface" : op == INVOKESPECIAL ? special : "virtual";
    String place = at.owner.startsWith("[") ? at.owner : "L" + at.owner + ";";
    int from = place(top - count), end = place(top) - 1;
    String given = count == 0 ? " {}" : "/range {" + v(from) + " .. " + v(end) + "}";
    add("invoke-" + kind + given + ", " + place + "->" + at.name + at.desc);
    Type gives = Type.getReturnType(at.desc);
    if (gives != Type.VOID_TYPE) {
      add("move-result" + kind(gives) + " " + v(from));
    }
  }

  private void typed(String name, int op) {
    String type = name.startsWith("[") ? name : "L" + name + ";";
    if (op == NEW) {
      add("new-instance " + v(place(top)) + ", " + type);
    } else if (op == CHECKCAST) {
      add("check-cast " + s(top - 1) + ", " + type);
    } else if (op == ANEWARRAY) {
      array("[" + type);
    } else {
      move("-object", 0, place(top - 1));
      add("instance-of v0, v0, " + type);
      move("", place(top - 1), 0);
    }
  }

  private void array(String type) {
    move("", 0, place(top - 1));
    add("new-array v0, v0, " + type);
    move("-object", place(top - 1), 0);
  }

  private void move(String kind, int to, int from) {
    add("move" + kind + "/16 " + v(to) + ", " + v(from));
  }

  /** The register of a value of the stack, counted from below. */
  private int place(int value) {
    int at = SCRATCH + method.maxLocals;
    for (int i = 0; i < value; i++) {
      at += size(i);
    }
    return at;
  }

  private int size(int value) {
    return frame.getStack(value).getSize();
  }

  private String kind(int value) {
    return size(value) == 2 ? "-wide" : frame.getStack(value).isReference() ? "-object" : "";
  }

  private static String kind(Type type) {
    return type.getSize() == 2 ? "-wide" : type.getSort() >= Type.ARRAY ? "-object" : "";
  }

  private String label(LabelNode node) {
    labels.putIfAbsent(node.getLabel(), labels.size());
    return ":at" + labels.get(node.getLabel());
  }

  private String s(int value) {
    return v(place(value));
  }

  private static String v(int register) {
    return "v" + register;
  }

  private void add(String line) {
    text.append(line).append('\n');
  }
}
