# The evidence of Stan programs from R, by the command line of stanct.
#
#     Rscript evidence.R model.stan data.json [other.stan ...]
#
# With several programs it prints their Bayes factors, too. It needs jsonlite and the command stanct.

suppressPackageStartupMessages(library(jsonlite))

stanct <- function(...) {
  words <- c(...)
  lines <- suppressWarnings(system2("stanct", shQuote(words), stdout = TRUE))
  status <- attr(lines, "status")
  if (!is.null(status) && status != 0) {
    stop("stanct ", words[1], " ended with status ", status, call. = FALSE)
  }
  fromJSON(paste(lines, collapse = "\n"))
}

evidence <- function(model, data, save, seed = 1) {
  stanct("evidence", model, data, "--seed", seed, "--json", "--quiet", "--save", save)
}

arguments <- commandArgs(trailingOnly = TRUE)
if (length(arguments) < 2) {
  stop("usage: Rscript evidence.R model.stan data.json [other.stan ...]", call. = FALSE)
}
models <- arguments[-2]
data <- arguments[2]
folders <- file.path(tempdir(), paste0("run", seq_along(models)))

for (k in seq_along(models)) {
  found <- evidence(models[k], data, folders[k])
  cat(sprintf("%s: log Z = %.4f, standard error %.4f\n", models[k], found$log_z, found$std_error))
  if (length(found$warnings) > 0) {
    cat("  failed checks:", paste(found$warnings, collapse = ", "), "\n")
  }
}
if (length(models) > 1) {
  compared <- stanct("compare", folders, "--json")
  print(compared$models[c("name", "log_z", "std_error", "probability")])
  cat(compared$verdict, "\n")
}
