data {
  int<lower=1> N;
  vector[N] base;
  real top;
  array[2] vector[N] centres;
}
transformed data {
  int M = N + 1;
  vector[N] floor_of = base;
  floor_of[2] = negative_infinity();
}
parameters {
  real a;
  real<lower=-1> b;
  real<upper=top> c;
  real<lower=b, upper=b + exp(a)> d; // bounds that are parameters
  real<offset=a, multiplier=2> e;
  vector<lower=0>[N] f;
  vector<lower=floor_of>[N] g;
  vector<lower=floor_of, upper=10>[N] h;
  row_vector<lower=-2, upper=3>[M] i;
  matrix<upper=1>[N, 2] j;
  array[N] real<lower=0, upper=1> k;
  array[2, N] real<lower=a> l;
  array[2] vector<offset=centres, multiplier=2>[N] m;
  matrix[2, 3] n;
  array[2] matrix[2, M] o;
  vector<multiplier=f>[N] p;
  real<lower=negative_infinity(), upper=positive_infinity()> q;
}
model {
  [a, b, c, d, e, q]' ~ normal(0.5, 2);
  f ~ gamma(2, 3);
  g ~ normal(1, 1);
  h ~ student_t(4, 0, 1);
  i ~ normal(0, 1);
  to_vector(j) ~ normal(0, 3);
  k ~ beta(2, 2);
  to_array_1d(l) ~ normal(1, 2);
  m[1] ~ normal(0, 1);
  m[2] ~ normal(f, 1);
  to_vector(n) ~ normal(0, 1);
  for (s in 1 : 2) to_vector(o[s]) ~ normal(s, 1);
  p ~ std_normal();
}
