"""Stan's distributions with a density and those with a mass function (stanc 2.39)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_DENSITIES = """
    beta beta_proportion cauchy chi_square dirichlet double_exponential exp_mod_normal exponential
    frechet gamma gaussian_dlm_obs gumbel inv_chi_square inv_gamma inv_wishart
    inv_wishart_cholesky lkj_corr lkj_corr_cholesky lkj_cov logistic loglogistic lognormal multi_gp
    multi_gp_cholesky multi_normal multi_normal_cholesky multi_normal_prec multi_student_t
    multi_student_t_cholesky normal normal_id_glm pareto pareto_type_2 rayleigh
    scaled_inv_chi_square skew_double_exponential skew_normal std_normal student_t uniform
    von_mises weibull wiener wishart wishart_cholesky
"""
_MASS_FUNCTIONS = """
    bernoulli bernoulli_logit bernoulli_logit_glm beta_binomial beta_neg_binomial binomial
    binomial_logit binomial_logit_glm categorical categorical_logit categorical_logit_glm
    dirichlet_multinomial discrete_range hypergeometric laplace_marginal_bernoulli_logit
    laplace_marginal_neg_binomial_2_log laplace_marginal_poisson_log
    laplace_marginal_tol_bernoulli_logit laplace_marginal_tol_neg_binomial_2_log
    laplace_marginal_tol_poisson_log multinomial multinomial_logit neg_binomial neg_binomial_2
    neg_binomial_2_log neg_binomial_2_log_glm ordered_logistic ordered_logistic_glm ordered_probit
    poisson poisson_log poisson_log_glm yule_simon
"""

SUFFIX: Mapping[str, str] = MappingProxyType(
    {name: "_lpdf" for name in _DENSITIES.split()}
    | {name: "_lpmf" for name in _MASS_FUNCTIONS.split()}
)
"""Mapping from a distribution's name to the suffix of the function that `~` calls."""
# Stan truncates it, but the embedded engine ends its process at a call of the distribution function
# that stands in no branch.
TRUNCATED_ONLY = frozenset({"von_mises"})
