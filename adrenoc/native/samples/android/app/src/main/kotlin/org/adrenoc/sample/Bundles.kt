package org.adrenoc.sample

import android.content.Context
import org.adrenoc.Model
import org.adrenoc.Options

/** The names of the bundles among the app's assets. */
fun bundleNames(context: Context): List<String> =
    context.assets.list("").orEmpty().filter { it.endsWith(".adrenoc.tar") }

/** The first bundle that somebody takes, loaded; the first start builds its kernels. */
fun findBundle(context: Context, takes: (Model) -> Boolean): Model? {
    for (name in bundleNames(context)) {
        val model = Model.fromAsset(context.assets, name, Options().cacheFolder(context.cacheDir))
        if (takes(model)) return model
        model.close()
    }
    return null
}
