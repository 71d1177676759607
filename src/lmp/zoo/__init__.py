"""Many model families, each expanded and verified in a separate process, on this machine or on a cluster.

``run`` stores an entry for each family (``entries``, ``requests``) and passes the families to an executor. ``local``
runs fork servers (``fork_server``, ``fork_server_main``), and ``cluster`` runs Dask tasks (``worker``,
``worker_results``). A child of a fork server runs ``family``. ``reasons`` gives the reason why a family is not
verified, and ``comparing`` the differences of two runs.
"""
