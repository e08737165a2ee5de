// Größen: what users write into comments and strings — “quotes”, Greek, ∑.
data {
  int<lower=1> N;
  array[N] real y; // Größe in µm
}
transformed data {
  if (N > 1000) reject("zu viele Größen: ", N, " > 1000 — „target += 1“");
}
parameters {
  real mu; // µ
  real<lower=0> sigma; // σ ~ half-normal
}
model {
  profile("prior: μ, σ") {
    mu ~ normal(0, 10); // μ ~ N(0, 10²)
    sigma ~ normal(0, 5);
  }
  profile("likelihood ∏ p(y | μ, σ)") {
    y ~ normal(mu, sigma);
  }
  if (is_nan(mu)) print("μ = ", mu, " // not a comment, no ~ either");
}
generated quantities {
  real z = mu / sigma; /* µ / σ */
}
