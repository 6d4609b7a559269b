"""A chat's values and what makes its replies. Knows neither SQL nor widgets."""
