// Dirichlet prior on the shares of K categories, multinomial counts: the
// posterior is a Dirichlet, the evidence a Dirichlet-multinomial probability.
data {
  int<lower=2> K;
  vector<lower=0>[K] concentration;
  array[K] int<lower=0> counts;
}
parameters {
  simplex[K] share;
}
model {
  share ~ dirichlet(concentration);
  counts ~ multinomial(share);
}
