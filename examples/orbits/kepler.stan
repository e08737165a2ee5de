functions {
  // Velocity over semi-amplitude; h and k are e sin(omega) and e cos(omega).
  vector kepler(vector longitude, real h, real k) {
    int n = num_elements(longitude);
    // Halley's steps for Kepler's equation, with the pericentre added to both anomalies.
    vector[n] F = longitude + k * sin(longitude) - h * cos(longitude);
    for (i in 1:3) {
      vector[n] c = cos(F);
      vector[n] d = sin(F);
      vector[n] bend = k * d - h * c;
      vector[n] slope = 1 - k * c - h * d;
      vector[n] off = (F - bend - longitude) ./ slope;
      F -= off ./ (1 - 0.5 * off .* bend ./ slope);
    }
    vector[n] c = cos(F);
    vector[n] d = sin(F);
    real flat = h / (1 + sqrt(1 - square(h) - square(k)));
    return k + (c - k + flat * (k * d - h * c)) ./ (1 - k * c - h * d);
  }
}
data {
  int n;
  int planets;
  vector[n] t;  // days
  vector[n] v;  // m/s
  cov_matrix[n] noise;  // without jitter
  vector[planets] shortest;  // bounds of the periods
  vector[planets] longest;
}
transformed data {
  vector[n] day = t - mean(t);
  // Jitter adds to all eigenvalues alike, and leaves the eigenvectors.
  matrix[n, n] axes = eigenvectors_sym(noise)';
  vector[n] along = eigenvalues_sym(noise);
}
parameters {
  real<lower=-1000, upper=1000> C;
  real<lower=0, upper=log(100)> log1p_jitter;
  vector<lower=log(shortest), upper=log(longest)>[planets] log_P;
  vector<lower=0, upper=log(1000)>[planets] log1p_K;
  vector<lower=0, upper=2 * pi()>[planets] longitude;  // mean longitude in the middle
  vector<lower=-1, upper=1>[planets] h;
  vector<lower=-sqrt(1 - square(h)), upper=sqrt(1 - square(h))>[planets] k;
}
model {
  C ~ uniform(-1000, 1000);
  log1p_jitter ~ uniform(0, log(100));
  log_P ~ uniform(log(shortest), log(longest));
  log1p_K ~ uniform(0, log(1000));
  longitude ~ uniform(0, 2 * pi());
  h ~ normal(0, 0.2);
  k ~ normal(0, 0.2);
  target += -planets * log1m_exp(-12.5);  // e < 1
  vector[n] rest = v - C;
  for (p in 1:planets)
    rest -= expm1(log1p_K[p])
            * kepler(2 * pi() * day / exp(log_P[p]) + longitude[p], h[p], k[p]);
  axes * rest ~ normal(0, sqrt(along + square(expm1(log1p_jitter))));
}
generated quantities {
  vector[planets] P = exp(log_P);
  vector[planets] K = expm1(log1p_K);
  vector[planets] e = sqrt(square(h) + square(k));
  real jitter = expm1(log1p_jitter);
}
