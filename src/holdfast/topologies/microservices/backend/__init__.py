"""The job port and the work port, as calls to the services of the microservices topology."""
