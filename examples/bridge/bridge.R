# Usage: Rscript bridge.R FOLDER
# Reads draws.csv (chain, then the unconstrained parameters) and density.R, which defines `data`
# and the function `log_density(x, data)`. Prints for both methods of bridgesampling:
# method, log Z, relative error (NA where bridgesampling gives none), seconds.
suppressMessages(library(bridgesampling))
folder <- commandArgs(trailingOnly = TRUE)[1]
source(file.path(folder, "density.R"))
draws <- as.matrix(read.csv(file.path(folder, "draws.csv")))
x <- draws[, -1, drop = FALSE]
chains <- lapply(unique(draws[, 1]), function(c) {
  coda::mcmc(x[draws[, 1] == c, , drop = FALSE])
})
free <- setNames(rep(Inf, ncol(x)), colnames(x))
set.seed(1)
for (method in c("normal", "warp3")) {
  seconds <- system.time(found <- bridge_sampler(
    coda::as.mcmc.list(chains),
    log_posterior = function(s, data) log_density(unname(s), data), data = data,
    lb = -free, ub = free, method = method, silent = TRUE
  ))[["elapsed"]]
  error <- if (method == "normal") error_measures(found)$cv else NA
  cat(method, format(found$logml, digits = 12), format(error, digits = 4), seconds, "\n")
}
