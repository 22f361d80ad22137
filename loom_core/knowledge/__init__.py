"""Knowledge: documents as passages, entities and vectors, and questions answered with cited passages."""
