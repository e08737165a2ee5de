// Neal's funnel in three dimensions, scaled so that its integral is exp(2): no
// one step size suits both its mouth and its neck.
parameters {
  real log_variance;
  vector[2] x;
}
model {
  target += 2;
  log_variance ~ std_normal();
  x ~ normal(0, exp(log_variance / 2));
}
