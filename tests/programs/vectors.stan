data {
  int<lower=2> K;
}
parameters {
  ordered[K] cut;
  positive_ordered[K] scale;
  simplex[K] weight;
  unit_vector[K] direction;
  sum_to_zero_vector[K] effect;
  array[2] simplex[K + 1] rows;
  array[2, 2] ordered[3] cuts;
  simplex[1] trivial;
}
model {
  cut ~ normal(0, 2);
  scale ~ exponential(0.5);
  weight ~ dirichlet(rep_vector(1.5, K));
  direction[1] ~ normal(0.5, 0.2);
  effect ~ normal(0, 1.5);
  for (r in 1 : 2) {
    rows[r] ~ dirichlet(rep_vector(2, K + 1));
    for (s in 1 : 2) cuts[r, s] ~ normal(r, s);
  }
}
