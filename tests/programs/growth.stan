// Logistic growth: a differential equation and log-normal measurements.
functions {
  vector grow(real t, vector y, real rate, real capacity) {
    return rate * y .* (1 - y / capacity);
  }
}
data {
  int<lower=1> T;
  array[T] real<lower=0> t;
  vector<lower=0>[T] y;
}
parameters {
  real<lower=0> rate;
  real<lower=max(y)> capacity;
  real<lower=0, upper=y[1]> start;
  real<lower=0> sigma;
}
model {
  vector[T] size_at;
  {
    array[T] vector[1] solution
      = ode_rk45(grow, [start]', 0, t, rate, capacity);
    size_at = to_vector(solution[ : , 1]);
  }
  rate ~ lognormal(-1, 1);
  capacity ~ pareto(max(y), 1.5);
  sigma ~ exponential(2);
  y ~ lognormal(log(size_at), sigma);
}
