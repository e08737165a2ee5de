// Marked animals seen again: the animal decides over which times a loop runs.
data {
  int<lower=0> I;
  int<lower=1> T;
  array[I, T] int<lower=0, upper=1> y;
  array[I] int<lower=0, upper=T> first; // 0: never seen
  array[I] int<lower=0, upper=T> last;
}
parameters {
  vector<lower=0, upper=1>[T - 1] survival;
  vector<lower=0, upper=1>[T - 1] detection;
}
model {
  for (i in 1 : I) {
    if (first[i] > 0) {
      for (t in (first[i] + 1) : last[i]) {
        1 ~ bernoulli(survival[t - 1]);
        y[i, t] ~ bernoulli(detection[t - 1]);
      }
    }
  }
}
