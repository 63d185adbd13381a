// How Native.java has models leave the device to others.
#include "convert.h"

using adrenoc_jni::check;

extern "C" {

JNIEXPORT jboolean JNICALL Java_org_adrenoc_Native_pause(JNIEnv* env, jclass, jlong timeout_ms) {
  const adrenoc_status status = adrenoc_pause(timeout_ms);
  if (status == ADRENOC_NOT_READY) return JNI_FALSE;
  return check(env, status) ? JNI_TRUE : JNI_FALSE;
}

JNIEXPORT void JNICALL Java_org_adrenoc_Native_resume(JNIEnv* env, jclass) {
  check(env, adrenoc_resume());
}

JNIEXPORT void JNICALL Java_org_adrenoc_Native_setSubmissionLimit(JNIEnv* env, jclass, jdouble ms) {
  check(env, adrenoc_set_submission_limit(ms));
}

}  // extern "C"
