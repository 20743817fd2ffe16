"""The two ports over the services of the microservices topology."""
