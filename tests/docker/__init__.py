"""A broker in Docker: the engine, an image where no registry has one, a container for the tests.

python -m tests.docker.engine start          uses the engine that runs, or starts dockerd
python -m tests.docker.image 4.3.0           builds kclient-test/kafka:4.3.0
python -m tests.docker.container run -- python -m examples.hello --bootstrap {bootstrap}
pytest --docker tests/behaviours             (tests/support/broker_fixtures.py)
"""
